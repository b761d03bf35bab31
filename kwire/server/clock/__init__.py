"""The driver of a core whose clock tests move."""
