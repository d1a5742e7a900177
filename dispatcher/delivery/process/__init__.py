"""The processes of `holdfast dispatch`: one, or several with a parent."""
