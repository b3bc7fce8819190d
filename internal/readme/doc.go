// Package readme keeps the pages for people true, as tests: the programs in README.md are examples that run, and what a
// page names exists. It has no code of its own.
package readme
