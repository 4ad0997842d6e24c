//! Writes one decided request upstream and reads its response. (path)
