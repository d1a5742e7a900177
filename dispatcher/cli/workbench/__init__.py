"""Commands for authors of receivers: `holdfast listen`, `trigger`, `sign`, `verify`, `conform`."""
