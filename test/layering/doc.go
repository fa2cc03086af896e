// Package layering holds two promises about the whole repository that no
// compiler checks: imports point down only, and the exported API of the root
// module is the one that was reviewed, in the files of the folder api.
//
// After an intended change of the API:
//
//	go test ./test/layering -update
//
// and the difference becomes part of the review. To look at the result of an
// earlier change use -count=1: the go command does not see that these tests read
// the other modules, and would repeat what they said before.
package layering
