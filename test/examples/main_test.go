package examples

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
)

func TestMain(m *testing.M) {
	status := m.Run()
	Remove()
	command.Remove()
	os.Exit(status)
}
