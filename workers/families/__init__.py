"""One file a family; the name of the file is the option's value."""
