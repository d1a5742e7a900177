"""What every page has: login, navigation, templates, errors."""
