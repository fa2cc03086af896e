package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeOverlay writes the changed source of a mutant next to file, and to file the argument of
// go build -overlay that puts it in the place of the right one.
func writeOverlay(root string, selected []*mutant, file string) error {
	if len(selected) != 1 {
		return fmt.Errorf("--overlay needs one mutant, and --only selects %d", len(selected))
	}
	_, after, err := selected[0].applied(root)
	if err != nil {
		return err
	}
	file, err = filepath.Abs(file)
	if err != nil {
		return err
	}
	changed := file + filepath.Ext(selected[0].file)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, selected[0].file): changed}})
	return errors.Join(err, os.WriteFile(changed, []byte(after), 0o600), os.WriteFile(file, text, 0o600))
}
