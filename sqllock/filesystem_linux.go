package sqllock

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// The magic numbers of file systems as statfs(2) lists them.
var (
	networkFileSystems = map[uint32]string{
		0x6969:     "NFS",
		0x517b:     "SMB",
		0xff534d42: "CIFS",
		0xfe534d42: "SMB2",
		0x5346414f: "AFS",
		0x73757245: "Coda",
		0x00c36400: "Ceph",
		0x47504653: "GPFS",
		0x0bd00bd0: "Lustre",
		0x01161970: "GFS2",
		0x7461636f: "OCFS2",
	}
	unclearFileSystems = map[uint32]string{
		0x65735546: "FUSE",
		0x01021997: "9P",
	}
)

// fileSystem returns the kind of the file system of path if it is not known to be local.
func fileSystem(path string) (kind string, remote bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return "", false
	}
	if kind, remote = networkFileSystems[uint32(stat.Type)]; remote {
		return kind, true
	}
	return unclearFileSystems[uint32(stat.Type)], false
}

// isReadOnly reports whether the file at path, or its folder, is on a file system that
// cannot be written to. An empty path is not read-only.
func isReadOnly(path string) bool {
	const readOnly = 1 // ST_RDONLY
	var file, folder syscall.Statfs_t
	if path == "" {
		return false
	}
	_, _ = syscall.Statfs(path, &file), syscall.Statfs(filepath.Dir(path), &folder) // which leave the flags at zero
	return (file.Flags|folder.Flags)&readOnly != 0
}

// isWritable reports whether this process may write what is at path, or nothing is there. It does not open
// it: closing a file drops the locks that SQLite, in the same process, has on it.
func isWritable(path string) bool {
	const readAndWrite = 4 | 2
	err := syscall.Access(path, readAndWrite)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}
