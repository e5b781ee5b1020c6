"""Reading labelled datasets."""
