"""What all pages share: login, menu, templates, errors."""
