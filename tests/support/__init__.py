"""What several levels of tests share."""
