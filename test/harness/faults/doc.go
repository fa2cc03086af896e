// Package faults subjects real processes to the faults that occur in production,
// and checks what a store and the library promise in that case. A [Fault] is a
// scenario that the tests of every store run on a bundle.Store of their own.
package faults
