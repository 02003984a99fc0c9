"""
The formats of files, one a module, whose name is the option's value.

One that is read has `read(stream, fields)`, which gives Lines; one that is written has a `Writer`. `SUFFIXES` are the
ends of file names that stand for it.
"""

import pkgutil

FORMATS = sorted(module.name for module in pkgutil.iter_modules(__path__))

READ = [name for name in FORMATS if name != "npy"]
"""Those that are read; the modules, which say so too, bring libraries along that help texts do without."""
