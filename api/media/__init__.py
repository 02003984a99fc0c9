"""Files of images and sounds on their way in: written out in a request, or fetched from where it says."""
