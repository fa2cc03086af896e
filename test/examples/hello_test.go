package examples

import "testing"

// TestHello: the program that README.md begins with needs nothing but a folder.
func TestHello(t *testing.T) {
	t.Parallel()
	cmd := Command(t, "hello")
	cmd.Dir = t.TempDir()
	output, err := cmd.CombinedOutput()
	if err != nil || string(output) != "charging order 42\n" {
		t.Errorf("it says %q, %v", output, err)
	}
}
