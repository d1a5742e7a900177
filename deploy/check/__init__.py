"""`make deploy-check`: what is under `deploy/` fits the schemas, the commands and itself."""
