"""TODOROOM dispatcher/operators/reissue"""
