"""What operators do: one package a verb, each with its rules, store, actions and views."""
