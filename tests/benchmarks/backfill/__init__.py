"""What a backfill costs, and whom: a part a file, whose name is the command's word."""
