// Package repo checks promises about the whole repository that no compiler
// checks. Imports point down only. The exported API is the reviewed one, in the
// files of the folder api. A claim in a document names a test that exists, a link
// has a target, and Go code in a document is compiled.
//
// After an intended change of the API:
//
//	go test ./test/repo -update
//
// The difference becomes part of the review. After a change in another module use
// -count=1: the go command does not know that these tests read the other modules,
// and would print a cached result.
package repo
