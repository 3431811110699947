"""The judge's pages: the content of the API for a browser, in the style of the console."""
