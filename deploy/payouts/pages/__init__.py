"""The service's one page for people: plain HTML, no script, every value escaped."""
