// Package drivertest is the conformance kit for stores: it checks sentences of the
// contract in package driver from outside.
//
// A store binds to it in a few lines and then needs no tests of its own for
// what [Clauses] lists:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Config{Open: open})
//	}
//
// The checks are data: a clause has a short stable name, such as
// "release-owner", and quotes what the contract demands, so that a failure shows
// which promise was broken. [Run] reports to a testing.T, one subtest for each
// clause. [Check] returns an error, so that the kit can be run outside of tests
// and on stores that are broken on purpose, as its own tests do.
//
// Clauses about something a store does not offer (an extension it does not
// implement, a trait it does not claim) do not apply to it; Run logs
// which. All lock names have a prefix that is new in every run, except for a
// handful that must be spelled exactly, so that the kit can run against a server
// that is in use, and several times at once.
package drivertest
