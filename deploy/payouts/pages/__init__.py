"""The service's web page: plain HTML, no script, every value escaped."""
