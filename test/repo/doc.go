// Package layering holds promises about the whole repository that no compiler
// checks: imports point down only; the exported API is the one that was reviewed, in
// the files of the folder api; a claim in a document names a test that exists, a
// link leads somewhere, and what is shown in Go is compiled.
//
// After an intended change of the API:
//
//	go test ./test/repo -update
//
// and the difference becomes part of the review. To look at the result of an
// earlier change use -count=1: the go command does not see that these tests read
// the other modules, and would repeat what they said before.
package repo
