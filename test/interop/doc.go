// Package interop has the tests in which dlock shares locks with other libraries:
// each keeps the other out, and each wakes the other.
//
// Those with libraries in Go run by themselves. The others are behind the build
// tag interop and are run by `make interop`, which first builds the other side:
// every folder here is a suite, and its file run does the set-up.
package interop
