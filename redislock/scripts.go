package redislock

import (
	"crypto/sha1" //nolint:gosec // what the server calls scripts by
	"embed"
	"encoding/hex"
	"slices"
	"strings"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one atomic operation on the server.
type script struct {
	source  string
	sha     string
	cluster *script // the same for servers with slots; nil if it is no other
}

// where returns the variant for servers with slots, or without.
func (sc *script) where(slots bool) *script {
	if slots && sc.cluster != nil {
		return sc.cluster
	}
	return sc
}

// scripts are the operations of one protocol.
type scripts struct {
	acquire     *script // one or several names, and the server's clock
	acquireLean *script // one name, with an estimate of the clock; nil where there is a better way
	acquireFair *script // nil where there is no queue
	renew       *script
	release     *script // also of unknown outcome, and places in the queue
	releaseLean *script // by the exact mark
	pass        *script
	raise       *script
	breakLock   *script
	inspect     *script
}

// newScripts puts the operations together from their parts.
func newScripts(p Protocol) *scripts {
	name := "redisson"
	if p == Plain {
		name = "plain"
	}
	publishing := func(before []string, after ...string) *script {
		variant := func(publish string) *script {
			return newScript(slices.Concat(before, []string{publish}, after)...)
		}
		sc := variant("publish")
		sc.cluster = variant("publish_cluster")
		return sc
	}
	with := func(file string) *script { return publishing([]string{name, "common"}, "fair", file) }
	s := &scripts{
		acquire:   with("acquire"),
		renew:     with("renew"),
		release:   with("release"),
		pass:      with("pass"),
		raise:     with("raise"),
		breakLock: with("break"),
		inspect:   newScript("common", name+"_inspect"),

		releaseLean: publishing(nil, name+"_release"),
	}
	if p == Redisson {
		s.acquireFair = with("fair_acquire")
		s.acquireLean = newScript("redisson_acquire")
	}
	return s
}

func newScript(files ...string) *script {
	var source strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // it is part of this package
		}
		source.WriteString(withoutComments(string(text)))
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // no secret
	return &script{source: source.String(), sha: hex.EncodeToString(sum[:])}
}

// withoutComments removes the lines that only people read.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}
