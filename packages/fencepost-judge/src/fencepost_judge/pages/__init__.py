"""The judge's pages: what the API tells, for people, in the look of the console."""
