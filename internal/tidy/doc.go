// Package tidy holds the project's style as tests: import arrows, purity, limits, documentation. It has no code of
// its own.
package tidy
