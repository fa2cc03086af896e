//go:build unix

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The demo reports the TTL that the lock has, if the store grants no shorter one.
func TestPauseReportsTheTTLOfTheStore(t *testing.T) {
	folder := t.TempDir()
	stdout, err := os.Create(filepath.Join(folder, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	p := Pause{TTL: 500 * time.Millisecond, Stage: Stage{Stdout: stdout, Stderr: os.Stderr, Folder: folder, JSON: true,
		Store: Store{File: filepath.Join(folder, "locks.db"), MinTTL: 800 * time.Millisecond}}}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(stdout.Name())
	if err != nil || strings.Count(string(text), `"ttl_ms":800,`) != 2 {
		t.Errorf("want a TTL of 800 ms in both runs: %s %v", text, err)
	}
}
