package redislock

import (
	"crypto/sha1" //nolint:gosec // what the server calls scripts by
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one atomic operation on the server.
type script struct {
	source string
	sha    string
}

// scripts are the operations of one protocol.
type scripts struct {
	acquire     *script // one or several names, and the server's clock
	acquireLean *script // one name, with an estimate of the clock; nil where there is a better way, or no one clock
	acquireFair *script // nil where there is no queue
	renew       *script
	release     *script // also of unknown outcome, and places in the queue
	releaseLean *script // by the exact mark; nil where commands alone can do it
	pass        *script
	raise       *script
	breakLock   *script
	inspect     *script
}

// newScripts puts the operations together from their parts.
func newScripts(p Protocol, cluster bool) *scripts {
	name, publish := "redisson", "publish"
	if p == Plain {
		name = "plain"
	}
	if cluster {
		publish = "publish_cluster"
	}
	with := func(files ...string) *script {
		return newScript(append([]string{name, "common", publish, "fair"}, files...)...)
	}
	s := &scripts{
		acquire:   with("acquire"),
		renew:     with("renew"),
		release:   with("release"),
		pass:      with("pass"),
		raise:     with("raise"),
		breakLock: with("break"),
		inspect:   newScript("common", name+"_inspect"),
	}
	if p == Redisson {
		s.acquireFair = with("fair_acquire")
	}
	if p == Redisson && !cluster {
		s.acquireLean = newScript("redisson_acquire")
	}
	if p == Plain || cluster {
		s.releaseLean = newScript(publish, name+"_release")
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
