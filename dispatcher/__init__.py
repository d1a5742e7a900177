"""The delivery service: route, claim, send, settle, rescue; its commands; the receiving half."""
