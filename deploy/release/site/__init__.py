"""What MkDocs reads to build the site of the documents: settings, styles and a hook."""
