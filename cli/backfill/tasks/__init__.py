"""The tasks that files are put through: what a row's items are, and what columns their outputs become."""
