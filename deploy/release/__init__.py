"""`make release-check`: version, licences, packages, documents, signed checksums."""
