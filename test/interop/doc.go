// Package interop tests that dlock shares locks with other libraries: they
// exclude each other and wake each other.
//
// The tests with libraries in Go need no preparation. The others are behind the
// build tag interop. `make interop` builds the other programs and runs them:
// every folder here is a suite, and its script run does the set-up.
package interop
