package edit

import "sync"

// locks is a lock for each key that somebody holds or waits for. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	mu    sync.Mutex
	users int
}

// lock waits until nobody else holds the key, and returns what gives it back.
func (l *locks) lock(key string) (unlock func()) {
	l.mu.Lock()
	k := l.held[key]
	if k == nil {
		if l.held == nil {
			l.held = make(map[string]*keyLock)
		}
		k = &keyLock{}
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()
	k.mu.Lock()
	return func() {
		k.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
	}
}
