package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// installer installs programs of a released version, as their users do: by go install of a
// version, from a proxy, outside of the repository.
type installer struct {
	proxy  string   // the folder with the released modules
	folder string   // for the module cache and the programs; empty at first
	env    []string // in addition
	flags  []string // of go install
}

// command returns a go command that takes the modules of dlock from the proxy, and those of others
// from the module cache of this machine or else from where this machine takes them.
func (i *installer) command(folder string, args ...string) (*exec.Cmd, error) {
	output, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, err
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false -modcacherw",
		"GOPATH="+i.folder, "GOMODCACHE="+filepath.Join(i.folder, "mod"), "GOBIN=", "GOTOOLCHAIN=local", "GONOSUMDB=github.com/dlock-go",
		"GOPROXY=file://"+i.proxy+",file://"+filepath.Join(cache, "cache", "download")+","+upstream)
	cmd.Env = append(cmd.Env, i.env...)
	return cmd, nil
}

// run runs a go command and returns what it printed.
func (i *installer) run(folder string, args ...string) (string, error) {
	cmd, err := i.command(folder, args...)
	if err != nil {
		return "", err
	}
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), err
}

// install installs the package at a version for a platform and returns the path of the program.
func (i *installer) install(pkg, version, goos, goarch string) (string, error) {
	if err := os.MkdirAll(i.folder, 0o755); err != nil {
		return "", err
	}
	platform := *i
	platform.env = append([]string{"GOOS=" + goos, "GOARCH=" + goarch}, i.env...)
	args := append([]string{"install"}, i.flags...)
	if _, err := platform.run(i.folder, append(args, pkg+"@"+version)...); err != nil {
		return "", err
	}
	program := filepath.Base(pkg)
	if goos == "windows" {
		program += ".exe"
	}
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		program = filepath.Join(goos+"_"+goarch, program)
	}
	return filepath.Join(i.folder, "bin", program), nil
}
