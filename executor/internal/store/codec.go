package store

import (
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// minCompressed is the smallest content that is compressed; of smaller ones the header is most.
	minCompressed = 128
	// maxQuick is the largest content that PutQuick compresses, at about 5 ms for a megabyte.
	maxQuick = 32 << 10
)

// codec compresses contents. Encoders and decoders are made when they are needed, and left to the garbage collector
// after use: each has a megabyte or more.
type codec struct{ encoders, decoders sync.Pool }

// record makes the two parts of the record of a content, compressed up to a size if that saves an eighth at least. The
// second one may be data itself.
func (c *codec) record(sum Sum, data []byte, most int) (head, payload []byte) {
	h := header{sum: sum, len: uint32(len(data)), stored: uint32(len(data)), codec: raw} //nolint:gosec // at most MaxContent
	payload = data
	if len(data) >= minCompressed && len(data) <= most {
		if enc := c.encoder(); enc != nil {
			if small := enc.EncodeAll(data, make([]byte, 0, len(data)/2)); len(small) < len(data)-len(data)/8 {
				payload, h.codec, h.stored = small, compressed, uint32(len(small)) //nolint:gosec // less than data
			}
			c.encoders.Put(enc)
		}
	}
	return headOf(h, payload), payload
}

// content returns the content in a record. It fails with errDamaged if that is not the one with the sum.
func (c *codec) content(sum Sum, rec []byte) ([]byte, error) {
	h, ok := parseHeader(rec)
	if !ok || h.sum != sum || len(rec) != recordHeader+int(h.stored) || crc32.Checksum(rec[recordHeader:], castagnoli) != h.check {
		return nil, errDamaged
	}
	data := rec[recordHeader:]
	if h.codec == compressed {
		dec, err := c.decoder()
		if err != nil {
			return nil, err
		}
		data, err = dec.DecodeAll(data, make([]byte, 0, h.len))
		c.decoders.Put(dec)
		if err != nil {
			return nil, errors.Join(errDamaged, err)
		}
	}
	if sha256.Sum256(data) != sum {
		return nil, errDamaged
	}
	return data, nil
}

// check returns an error if a record does not have the content with the sum.
func (c *codec) check(sum Sum, rec []byte) error {
	_, err := c.content(sum, rec)
	return err
}

// encoder returns nil where none can be had: contents are kept as they are then.
func (c *codec) encoder() *zstd.Encoder {
	if enc, ok := c.encoders.Get().(*zstd.Encoder); ok {
		return enc
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil
	}
	return enc
}

func (c *codec) decoder() (*zstd.Decoder, error) {
	if dec, ok := c.decoders.Get().(*zstd.Decoder); ok {
		return dec, nil
	}
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxContent+1<<20))
}
