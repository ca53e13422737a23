"""The measuring process: how long the steps of the engine take, told as lines of JSON."""
