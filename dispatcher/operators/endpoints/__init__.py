"""Endpoints: what their settings may be; adding, changing, applying files of them."""
