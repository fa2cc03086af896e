//go:build unix

package sqllock

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// openFolder returns a folder above the file at path in which untrusted users can replace the file, or an empty
// text. Untrusted are all users of a folder that everybody may write to, and an owner of a folder other than this
// user, root and the owner of the file. A sticky bit, as on /tmp, keeps users from replacing files of others. Then
// only the folder of the file counts: users may create the files that SQLite opens beside it.
func openFolder(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	trusted := []uint32{0, uint32(os.Geteuid()), ownerOf(path)}
	for below := path; below != filepath.Dir(below); below = filepath.Dir(below) {
		folder := filepath.Dir(below)
		info, err := os.Stat(folder)
		if err != nil {
			return ""
		}
		everybody := info.Mode()&0o002 != 0 && (info.Mode()&fs.ModeSticky == 0 || below == path)
		if everybody || !slices.Contains(trusted, ownerOf(folder)) {
			return folder
		}
	}
	return ""
}

// ownerOf returns root for a file that cannot be examined.
func ownerOf(path string) uint32 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat.Uid
}
