"""The tables of docs/*.md, a module for each document. tables() of a module returns them by name."""
