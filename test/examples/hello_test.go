package examples

import "testing"

// TestHello checks that the first program of README.md needs only a folder.
func TestHello(t *testing.T) {
	t.Parallel()
	cmd := Command(t, "hello")
	cmd.Dir = t.TempDir()
	output, err := cmd.CombinedOutput()
	if err != nil || string(output) != "charging order 42\n" {
		t.Errorf("it printed %q, %v", output, err)
	}
}
