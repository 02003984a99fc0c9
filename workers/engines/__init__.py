"""One file an engine; the name of the file is the option's value."""
