// Package faults does to real processes what happens to them in production, and
// checks what a store and the library promise then. A fault is a function that
// the tests of every store call with a [Rig] of their own.
package faults
