package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// TestDiagnoseFolder: who may write to a folder can replace the database in it.
func TestDiagnoseFolder(t *testing.T) {
	t.Parallel()
	const stranger = 12345
	for name, c := range map[string]struct {
		above, folder          os.FileMode
		ownerAbove, ownsFolder int // only root can give them away
		ownsFile               int
		level                  driver.Level
		says                   string
	}{
		"own folder":                    {0o755, 0o700, 0, 0, 0, driver.LevelOK, "locks.db"},
		"open to all":                   {0o755, 0o777, 0, 0, 0, driver.LevelWarning, "above/folder:"},
		"open to all, sticky":           {0o755, 0o777 | os.ModeSticky, 0, 0, 0, driver.LevelWarning, "above/folder:"},
		"below a folder open to all":    {0o777, 0o700, 0, 0, 0, driver.LevelWarning, "above:"},
		"below a sticky folder":         {0o777 | os.ModeSticky, 0o700, 0, 0, 0, driver.LevelOK, "locks.db"},
		"folder of another user":        {0o755, 0o755, 0, stranger, 0, driver.LevelWarning, "above/folder:"},
		"below that of another user":    {0o755, 0o755, stranger, 0, 0, driver.LevelWarning, "above:"},
		"file and folder of their user": {0o755, 0o755, 0, stranger, stranger, driver.LevelOK, "locks.db"},
	} {
		if os.Geteuid() != 0 && c.ownerAbove+c.ownsFolder > 0 {
			continue
		}
		above := filepath.Join(t.TempDir(), "above")
		folder := filepath.Join(above, "folder")
		file := filepath.Join(folder, "locks.db")
		check(t, os.MkdirAll(folder, 0o755))
		store := openStore(t, file)
		for path, owner := range map[string]int{above: c.ownerAbove, folder: c.ownsFolder, file: c.ownsFile} {
			if owner > 0 {
				check(t, os.Chown(path, owner, -1))
			}
		}
		for path, mode := range map[string]os.FileMode{above: c.above, folder: c.folder} {
			check(t, os.Chmod(path, mode))
		}
		if f := finding(t, store, "file"); f.Level != c.level || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: %+v; want %s and %q", name, f, c.level, c.says)
		}
	}
}
