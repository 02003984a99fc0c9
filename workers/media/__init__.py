"""Files of images and sounds, as they come from callers, made into the arrays that networks take; no torch here."""
