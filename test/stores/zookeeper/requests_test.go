package zookeeper

import (
	"bytes"
	"encoding/binary"
)

// The kinds of requests.
const (
	opDelete   = 2
	opExists   = 3
	opGetData  = 4
	opSync     = 9
	opPing     = 11
	opChildren = 12
	opMulti    = 14
)

// reads matches a request for the data of a node.
func reads(path string) func(requests []byte) bool { return sends(opGetData, path) }

// sends matches a request of that kind that contains text.
func sends(op uint32, text string) func(requests []byte) bool {
	return matches(op, func(request []byte) bool { return bytes.Contains(request, []byte(text)) })
}

// removal matches a request that removes nodes, also one by name alone.
func removal(text string) func(requests []byte) bool {
	return func(requests []byte) bool { return sends(opMulti, text)(requests) || sends(opDelete, text)(requests) }
}

// matches matches a request of that kind for which ok is true, also among several that were sent
// together. Each begins with its length, its number and its kind.
func matches(op uint32, ok func(request []byte) bool) func(requests []byte) bool {
	const header = 12
	return func(requests []byte) bool {
		for len(requests) >= header {
			length := min(max(4+int(binary.BigEndian.Uint32(requests)), header), len(requests))
			request := requests[:length]
			if binary.BigEndian.Uint32(request[8:]) == op && ok(request) {
				return true
			}
			requests = requests[length:]
		}
		return false
	}
}

// The kinds of requests within a transaction.
const (
	opCreateWithin = 1
	opDeleteWithin = 2
)

// acquires matches the requests that create the nodes of an acquisition.
func acquires(name string) func(requests []byte) bool { return beginsWith(opCreateWithin, name) }

// removes matches the requests that remove them.
func removes(name string) func(requests []byte) bool { return beginsWith(opDeleteWithin, "/"+name+"/") }

// beginsWith matches a transaction that contains text and whose first request is of that kind. The
// kind follows the header of the transaction.
func beginsWith(op uint32, text string) func(requests []byte) bool {
	const header = 12
	first := func(request []byte) bool {
		return len(request) >= header+4 && binary.BigEndian.Uint32(request[header:]) == op && bytes.Contains(request, []byte(text))
	}
	return matches(opMulti, first)
}
