package files

// RenameBy is [Named.Rename] without replacement, by an implementation of renameat2.
func (n Named) RenameBy(to Named, renameat2 func(oldDir int, old string, newDir int, name string, flags uint) error) error {
	return n.renameTo(to, false, renameat2)
}
