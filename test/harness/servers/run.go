package servers

import (
	"os"
	"testing"
)

// Run starts a server for a test, and stops it when the test is over. The
// server's log becomes part of a test that fails.
func Run(t testing.TB, kind *Kind, args ...string) *Server {
	t.Helper()
	s, err := Start(kind, args...)
	if err != nil {
		t.Fatal(err)
	}
	Group{s}.stopAfter(t)
	return s
}

// URL returns where a server of that kind answers: the one that the environment
// points to, or else one that is started for the test.
func URL(t testing.TB, kind *Kind) string {
	t.Helper()
	if url := os.Getenv(kind.Variable()); url != "" {
		return url
	}
	return Run(t, kind).URL()
}
