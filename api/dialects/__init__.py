"""How each API that clients already speak tells of errors; a file is a dialect."""
